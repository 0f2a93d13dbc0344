-- How do values and scores run over the tenths of an episode, by outcome?
PIVOT (
    SELECT 'value' AS judgement, tag, dataset, success, tenth, value
    FROM "values" JOIN moments USING (dataset, episode_index, frame_index)
    UNION ALL
    SELECT 'score', tag, dataset, success, tenth, ensemble_signed_score
    FROM scores JOIN moments USING (dataset, episode_index, frame_index)
)
ON tenth IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
USING round(avg(value), 3)
ORDER BY judgement, tag, dataset, success;
