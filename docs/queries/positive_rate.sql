-- How many frames are positive, by dataset and outcome, and by which threshold?
SELECT a.tag, a.dataset, d.type, m.success, count(*) AS frames, round(avg(a.advantage::INT), 3) AS positive_rate,
    round(avg(m.corrected::INT), 3) AS corrected, any_value(t.thresholds) AS thresholds
FROM advantages a
JOIN moments m USING (dataset, episode_index, frame_index)
JOIN datasets d USING (dataset)
LEFT JOIN (
    SELECT tag, dataset, string_agg(pool || ' ' || round(threshold, 4), ', ' ORDER BY pool) AS thresholds FROM thresholds GROUP BY ALL
) t USING (tag, dataset)
GROUP BY ALL
ORDER BY ALL;
