-- Is a critic better than predictors that see no image?
PIVOT (SELECT tag, metric, predictor, round(value, 4) AS value FROM critic_evaluations WHERE part IS NULL AND member IS NULL)
ON predictor
USING any_value(value)
ORDER BY tag, metric;
