"""Report: one page with the figures and tables of everything that the experiment made.

Reads    all results
Writes   <results>/report/
"""


rule build_report:
    input:
        rules.datasets.input,
        rules.returns.input,
        rules.values.input,
        rules.scores.input,
        rules.advantages.input,
        rules.evaluations.input,
        script="workflow/scripts/build_report.py",
        critics=[critic_records(tag) for tag in EXPERIMENT.critics],
        policies=[in_folder(f"{RESULTS}/policies/{tag}", ["lineage.json", "metrics.jsonl"]) for tag in EXPERIMENT.policies],
        thresholds=threshold_files(EXPERIMENT.advantages),
    output:
        in_folder("<results>/report", REPORT_FILES),
    log:
        "<logs>/build_report.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=json.dumps(RAW, sort_keys=True),
        code=code_of("build_report"),
        results=lambda wildcards, output: os.path.dirname(os.path.dirname(output[0])),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Build the report"
    shell:
        "python {input.script} --config {params.config:q} --results {params.results} --output-dir {params.folder} > {log} 2>&1"


rule report:
    input:
        rules.build_report.output,
    message:
        "The report"
