"""Report: one page with the figures and tables of everything that the experiment made, and how progress critics judged each dataset.

Reads    all results
Writes   <results>/diagnostics/{tag}/{dataset}/    of labels by scores
         <results>/report/
"""


rule plot_diagnostics:
    input:
        script="workflow/scripts/plot_diagnostics.py",
        episodes=lambda wildcards: episodes_files([wildcards.dataset]),
        judgements=lambda wildcards: judgements(wildcards.tag, [wildcards.dataset]),
        advantages=lambda wildcards: sidecar_files("advantages", wildcards.tag, [wildcards.dataset]),
        threshold="<results>/thresholds/{tag}.yaml",
    output:
        in_folder("<results>/diagnostics/{tag}/{dataset}", DIAGNOSTICS_FILES),
    log:
        "<logs>/plot_diagnostics/{tag}@{dataset}.log",
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: labels_slice(wildcards.tag, [wildcards.dataset]),
        code=code_of("plot_diagnostics"),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Plot how the labels {wildcards.tag} of {wildcards.dataset} came about"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes} --threshold {input.threshold} --output-dir {params.folder} > {log} 2>&1"


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
        diagnostics=diagnostics_files(),
    output:
        in_folder("<results>/report", REPORT_FILES),
    log:
        "<logs>/build_report.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=report_slice(),
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
