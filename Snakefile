from snakemake.utils import min_version

min_version("9.27")


# Snakemake merges every config file it reads: the demo is read only when the user names no other experiment.
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/files.smk"
include: "workflow/rules/slices.smk"
include: "workflow/rules/devices.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/returns.smk"
include: "workflow/rules/critic.smk"
include: "workflow/rules/steam.smk"
include: "workflow/rules/advantages.smk"
include: "workflow/rules/policy.smk"
include: "workflow/rules/simulation.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/publish.smk"


rule all:
    default_target: True
    input:
        rules.critics.input,
        rules.policies.input,
        rules.report.input,
    message:
        "Everything that the experiment describes"
