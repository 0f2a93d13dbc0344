-- Which sidecars were made from another version of their dataset than the index describes?
SELECT made.path, made.dataset_fingerprint[:12] AS made_from, indexed.dataset_fingerprint[:12] AS now
FROM lineage made JOIN lineage indexed USING (dataset)
WHERE indexed.stage = 'index_dataset' AND made.dataset_fingerprint <> indexed.dataset_fingerprint
ORDER BY made.path;
