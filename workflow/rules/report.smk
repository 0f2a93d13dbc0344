"""Report: one page with the figures and tables of everything that the experiment made, and how progress critics judged each dataset.

Reads    all results, and run times beside the logs
Writes   <results>/rule_graph.dot                  Snakemake's own rule graph of the experiment
         <results>/diagnostics/{tag}/{dataset}/    of labels by scores
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


rule draw_rule_graph:
    input:
        "Snakefile",
        sorted(glob.glob("workflow/rules/*.smk")),
    output:
        "<results>/rule_graph.dot",
    log:
        "<logs>/draw_rule_graph.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=json.dumps(RAW, sort_keys=True),
    message:
        "Ask Snakemake for the graph of its rules"
    shell:
        "experiment=$(mktemp) && trap 'rm -f $experiment' EXIT && printf %s {params.config:q} > $experiment &&"
        " python -m snakemake --configfile $experiment --rulegraph > {output} 2> {log}"


rule build_report:
    input:
        rules.datasets.input,
        rules.returns.input,
        rules.values.input,
        rules.scores.input,
        rules.advantages.input,
        rules.evaluations.input,
        script="workflow/scripts/build_report.py",
        rule_graph=rules.draw_rule_graph.output,
        critics=[critic_records(tag) for tag in EXPERIMENT.critics],
        policies=[in_folder(f"{RESULTS}/policies/{tag}", ["lineage.json", "metrics.jsonl"]) for tag in EXPERIMENT.policies],
        thresholds=threshold_files(EXPERIMENT.advantages),
        diagnostics=diagnostics_files(),
    output:
        reported("<results>/report", REPORT_FILES),
    log:
        "<logs>/build_report.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=json.dumps(RAW, sort_keys=True),
        code=code_of("build_report"),
        run_times=run_time_files(),
        logs=f"logs/{EXPERIMENT.experiment}",
        results=lambda wildcards, output: os.path.dirname(os.path.dirname(output[0])),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Build the report"
    shell:
        "python {input.script} --config {params.config:q} --results {params.results} --rule-graph {input.rule_graph}"
        " --logs-dir {params.logs} --run-times {params.run_times:q} --output-dir {params.folder} > {log} 2>&1"


rule report:
    input:
        rules.build_report.output,
    message:
        "The report"
