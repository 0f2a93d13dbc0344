-- How good is each member of an ensemble, beside always guessing the most frequent stride?
PIVOT (
    SELECT tag, metric, round(value, 4) AS value, if(member IS NULL, predictor, 'member ' || member) AS predictor
    FROM critic_evaluations
    WHERE part IS NULL AND (predictor = 'eval' OR (predictor = 'baseline_majority' AND member IS NULL))
        AND metric IN ('loss', 'accuracy', 'accuracy_neighbor') AND tag IN (SELECT tag FROM scores)
)
ON predictor
USING any_value(value)
ORDER BY tag, metric;
