-- Which episodes did a critic judge worst, by label tag?
SELECT *
FROM (
    SELECT tag, dataset, episode_index, success, length,
        round(avg(advantage_continuous), 4) AS mean_advantage, round(avg(advantage::INT), 3) AS positive_rate
    FROM advantages JOIN episodes USING (dataset, episode_index)
    GROUP BY ALL
)
QUALIFY row_number() OVER (PARTITION BY tag ORDER BY mean_advantage) <= 10
ORDER BY tag, mean_advantage;
