-- Where did each training end?
SELECT kind, tag, member, metric, arg_max(value, step) AS last_value, max(step) AS step
FROM metrics
GROUP BY ALL
ORDER BY ALL;
