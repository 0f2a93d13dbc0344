-- In which episodes do the members of an ensemble disagree most?
SELECT tag, dataset, episode_index, success, round(avg(p_progress_variance), 4) AS mean_variance,
    round(avg(ensemble_signed_score), 3) AS mean_score
FROM scores JOIN episodes USING (dataset, episode_index)
GROUP BY ALL
ORDER BY mean_variance DESC, tag, dataset, episode_index
LIMIT 20;
