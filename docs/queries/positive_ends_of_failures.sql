-- Which failed episodes end with mostly positive frames though nobody corrected them?
SELECT tag, dataset, episode_index, count(*) AS frames, round(avg(advantage::INT), 2) AS positive_rate
FROM advantages JOIN moments USING (dataset, episode_index, frame_index)
WHERE NOT success AND tenth = 9 AND NOT corrected
GROUP BY ALL
HAVING positive_rate > 0.5
ORDER BY tag, positive_rate DESC, dataset, episode_index;
