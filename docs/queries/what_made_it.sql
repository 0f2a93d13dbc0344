-- Which stage, parameters and version of the dataset made each artefact?
SELECT stage, tag, path, dataset_fingerprint[:12] AS fingerprint, code[:12] AS code, parameters
FROM lineage
ORDER BY stage, tag, path;
