-- How long do episodes take, by dataset, task and outcome?
SELECT dataset, task, success, count(*) AS episodes, round(avg(frames), 1) AS mean_frames, max(frames) AS most_frames,
    round(avg(seconds), 2) AS mean_seconds
FROM (
    SELECT dataset, episode_index, success, first(task) AS task, count(*) AS frames, max(timestamp) - min(timestamp) AS seconds
    FROM frames JOIN moments USING (dataset, episode_index, frame_index)
    GROUP BY ALL
)
GROUP BY ALL
ORDER BY ALL;
