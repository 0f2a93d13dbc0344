-- How often does each policy succeed, and how long does it take?
SELECT tag, policy, guidance_scale, count(*) FILTER (success) AS successes, count(*) AS episodes, round(avg(success::INT), 3) AS success_rate,
    round(avg(num_frames) FILTER (success), 1) AS frames_of_successes
FROM evaluations
GROUP BY ALL
ORDER BY tag, success_rate DESC, policy, guidance_scale;
