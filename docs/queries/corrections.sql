-- How are the ten frames before a correction judged, and the frames of the correction?
SELECT tag, dataset, if(corrected, 'during', 'before') AS moment, count(*) AS frames,
    round(avg(advantage_continuous), 4) AS mean_advantage, round(avg(advantage::INT), 3) AS positive_rate
FROM advantages
JOIN moments USING (dataset, episode_index, frame_index)
JOIN episodes USING (dataset, episode_index)
WHERE corrected OR len(list_filter(intervention_start, lambda start: frame_index BETWEEN start - 10 AND start - 1)) > 0
GROUP BY ALL
ORDER BY ALL;
