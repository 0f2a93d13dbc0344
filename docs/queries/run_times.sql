-- Where did the time go, by rule and job?
SELECT rule, job, round(seconds, 1) AS seconds, round(100 * seconds / sum(seconds) OVER (), 1) AS percent, round(peak_mib) AS peak_mib
FROM run_times
ORDER BY seconds DESC, rule, job;
