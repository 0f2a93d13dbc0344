-- How far are a critic's values from the returns, by task and outcome?
SELECT v.tag, v.dataset, d.split, m.task, m.success, count(*) AS frames,
    round(avg(abs(v.value - s.value_offset - r.return / s.scale)), 4) AS mae,
    round(avg(v.value - s.value_offset - r.return / s.scale), 4) AS bias
FROM "values" v
JOIN returns r ON r.tag = v.returns_tag AND (r.dataset, r.episode_index, r.frame_index) = (v.dataset, v.episode_index, v.frame_index)
JOIN moments m ON (m.dataset, m.episode_index, m.frame_index) = (v.dataset, v.episode_index, v.frame_index)
JOIN return_scales s ON s.tag = v.tag AND coalesce(s.task, m.task) = m.task
JOIN datasets d ON d.dataset = v.dataset
GROUP BY ALL
ORDER BY ALL;
