-- On which frames do labels by values (RECAP) and labels by scores (STEAM) disagree?
SELECT dataset, episode_index, frame_index, r.tag AS recap_tag, r.advantage AS recap, round(r.advantage_continuous, 4) AS recap_advantage,
    s.tag AS steam_tag, s.advantage AS steam, round(s.advantage_continuous, 4) AS steam_score
FROM advantages r JOIN advantages s USING (dataset, episode_index, frame_index)
WHERE r.method = 'recap' AND s.method = 'steam' AND r.advantage <> s.advantage
ORDER BY ALL;
