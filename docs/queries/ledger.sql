-- What did each round of a policy collect and learn from, and did it help?
SELECT loop, round, policy, collected_by, new_data, episodes, round(solved_there, 3) AS solved_there, round(critic_held_out, 3) AS critic_held_out,
    round(positive_rate, 3) AS positive_rate, evaluation, guidance_scale, successes, evaluated
FROM ledger
ORDER BY loop, evaluation, round, guidance_scale;
