-- How many frames are positive in each tenth of an episode, by task and outcome?
PIVOT (
    SELECT tag, dataset, task, success, tenth, advantage::INT AS positive
    FROM advantages JOIN moments USING (dataset, episode_index, frame_index)
)
ON tenth IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
USING round(avg(positive), 2)
ORDER BY tag, dataset, task, success;
