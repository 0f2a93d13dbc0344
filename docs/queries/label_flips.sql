-- How many labels differ between two tags, by dataset and outcome?
SELECT a.tag, b.tag AS other, dataset, success, count(*) AS frames,
    count(*) FILTER (a.advantage AND NOT b.advantage) AS only_first, count(*) FILTER (b.advantage AND NOT a.advantage) AS only_other,
    round(avg((a.advantage = b.advantage)::INT), 3) AS equal
FROM advantages a
JOIN advantages b USING (dataset, episode_index, frame_index)
JOIN episodes USING (dataset, episode_index)
WHERE a.tag < b.tag
GROUP BY ALL
ORDER BY ALL;
