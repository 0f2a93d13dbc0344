"""Report: one page with the figures and tables of everything that the experiment made, and how critics judged each dataset.

Reads    all results, and run times beside the logs
Writes   <results>/rule_graph.dot                  Snakemake's own rule graph of the experiment
         <results>/diagnostics/{tag}/{dataset}/    figures, numbers and single episodes
         <results>/videos/{dataset}.json           which episodes the target videos shows
         <results>/videos/{tag}/{dataset}/         single episodes, those or any other by name
         <results>/evaluation_videos/{tag}/{policy}_{arm}/    the first episodes of an arm
         <results>/report/
"""


rule plot_diagnostics:
    input:
        label_scores,
        script="workflow/scripts/plot_diagnostics.py",
        episodes=lambda wildcards: episodes_files([wildcards.dataset]),
        advantages=lambda wildcards: sidecar_files("advantages", wildcards.tag, [wildcards.dataset]),
        threshold="<results>/thresholds/{tag}.yaml",
    output:
        directory("<results>/diagnostics/{tag}/{dataset}"),
    log:
        "<logs>/plot_diagnostics/{tag}@{dataset}.log",
    wildcard_constraints:
        tag=one_of(EXPERIMENT.judged_labels),
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: shown_slice(wildcards, "diagnostics"),
        code=code_of("plot_diagnostics"),
    message:
        "Plot how the labels {wildcards.tag} of {wildcards.dataset} came about"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes} --threshold {input.threshold} --output-dir {output} > {log} 2>&1"


checkpoint choose_episodes:
    input:
        script="workflow/scripts/choose_episodes.py",
        episodes=lambda wildcards: episodes_files([wildcards.dataset]),
    output:
        "<results>/videos/{dataset}.json",
    log:
        "<logs>/choose_episodes/{dataset}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=slice_json(diagnostics=RAW["diagnostics"]),
        code=code_of("choose_episodes"),
    message:
        "Choose the episodes of {wildcards.dataset} that become videos"
    shell:
        "python {input.script} --config {params.config:q} --episodes {input.episodes} --output {output} > {log} 2>&1"


rule render_video:
    input:
        label_scores,
        script="workflow/scripts/render_video.py",
        episodes=lambda wildcards: episodes_files([wildcards.dataset]),
        advantages=lambda wildcards: sidecar_files("advantages", wildcards.tag, [wildcards.dataset]),
        threshold="<results>/thresholds/{tag}.yaml",
    output:
        "<results>/videos/{tag}/{dataset}/episode_{episode}.mp4",
    log:
        "<logs>/render_video/{tag}@{dataset}/{episode}.log",
    wildcard_constraints:
        tag=one_of(EXPERIMENT.judged_labels),
        episode="[0-9]+",
    conda:
        "../../envs/environment.yaml"
    params:
        config=shown_slice,
        code=code_of("render_video"),
    message:
        "Render episode {wildcards.episode} of {wildcards.dataset} with the labels {wildcards.tag}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --tag {wildcards.tag} --episode {wildcards.episode}"
        " --episodes {input.episodes} --threshold {input.threshold} --output {output} > {log} 2>&1"


rule render_arm:
    input:
        lambda wildcards: policy_weights(wildcards.policy),
        script="workflow/scripts/render_arm.py",
        critic=lambda wildcards: f"{RESULTS}/critics/{EXPERIMENT.evaluations[wildcards.tag].video_critic}/model.safetensors",
        rows="<results>/evaluations/{tag}/{policy}_{arm}.parquet",
    output:
        directory("<results>/evaluation_videos/{tag}/{policy}_{arm}"),
    log:
        "<logs>/render_arm/{tag}/{policy}_{arm}.log",
    conda:
        "../../envs/environment.yaml"
    threads: device_threads()
    resources:
        **device_resources(),
        runtime=120,
    params:
        config=arm_videos_slice,
        guidance=guidance,
        code=code_of("render_arm"),
        policy=lambda wildcards: policy_folder(wildcards.policy),
        critic=lambda wildcards, input: os.path.dirname(input.critic),
    message:
        "Render the first episodes of the policy {wildcards.policy} ({wildcards.arm}) in {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --evaluation {wildcards.tag} --policy {wildcards.policy}"
        " {params.policy:q} {params.guidance:q} --critic-dir {params.critic} --rows {input.rows} --output-dir {output} > {log} 2>&1"


rule videos:
    input:
        rules.advantages.input,
        arm_videos(),
        [chosen_videos(tag, dataset) for tag, config in EXPERIMENT.judged_labels.items() for dataset in config.datasets],
    message:
        "Videos of some episodes of every labelled dataset, and of every arm of evaluations that name a critic for them"


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
        config=report_slice(),
    message:
        "Ask Snakemake for the graph of its rules"
    shell:
        "experiment=$(mktemp) && trap 'rm -f $experiment' EXIT && printf %s {params.config:q} > $experiment &&"
        " python -m snakemake --configfile $experiment --rulegraph > {output} 2> {log}"


rule build_report:
    input:
        episodes_files(EXPERIMENT.datasets),
        rules.returns.input,
        rules.values.input,
        rules.scores.input,
        rules.advantages.input,
        rules.evaluations.input,
        script="workflow/scripts/build_report.py",
        rule_graph=rules.draw_rule_graph.output,
        critics=[critic_records(tag) for tag in EXPERIMENT.critics],
        policies=[in_folder(f"{RESULTS}/policies/{tag}", ["lineage.json", "metrics.jsonl"]) for tag in EXPERIMENT.policies],
        thresholds=threshold_files(EXPERIMENT.judged_labels),
        diagnostics=diagnostics_folders(),
    output:
        reported("<results>/report", REPORT_FILES),
    log:
        "<logs>/build_report.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=report_slice(),
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
