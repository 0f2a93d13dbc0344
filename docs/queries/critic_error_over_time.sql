-- Where in an episode is a critic wrong: mean error of its values in each tenth, by outcome?
PIVOT (
    SELECT v.tag, v.dataset, m.success, m.tenth, v.value - s.value_offset - r.return / s.scale AS error
    FROM "values" v
    JOIN returns r ON r.tag = v.returns_tag AND (r.dataset, r.episode_index, r.frame_index) = (v.dataset, v.episode_index, v.frame_index)
    JOIN moments m ON (m.dataset, m.episode_index, m.frame_index) = (v.dataset, v.episode_index, v.frame_index)
    JOIN return_scales s ON s.tag = v.tag AND coalesce(s.task, m.task) = m.task
)
ON tenth IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
USING round(avg(error), 3)
ORDER BY tag, dataset, success;
