"""What the page says beneath its tables: how numbers were computed and how to read them."""

SUCCESS = (
    "Every arm starts from the same initial states. Intervals of rates: Wilson. Differences: to the first arm, with Newcombe's paired "
    "interval. p: exact McNemar test, two-sided, as computed. A difference is called significant when p is below 0.05 divided by the "
    "number of arms compared with the first. Successes per simulated hour count the time of failures too."
)
GUIDANCE = (
    "The same weights at several guidance scales; differences are to the least one, p as above and not corrected for how many scales there "
    "are. The scale that looks best here was chosen on these initial states: evaluate it on others, by another seed, before it is reported."
)
LEDGER = (
    "A row a round; round 0 collected the first rollouts. Each further round starts from the same weights as the first and learns from the "
    "data of all rounds so far, under labels of its own. Solved there: share of the collected episodes that succeeded, with exploration "
    "noise and with corrections, so no success rate of the policy. Positive, rollouts: over all rollouts that the round learned from. "
    "Success rates and exact McNemar tests as above, from the same initial states in every round; none of these states is in the data."
)
STOPPED = (
    "Arms here may stop early, as soon as they are told apart from the first. Two arms are compared on the initial states that both saw, "
    "and p is the always-valid one, which looking often does not make too small: 1 over the greatest likelihood ratio so far of the states "
    "that one arm alone solved, any share against one half (uniform prior). Stopping at a difference makes success rates and differences "
    "of arms that stopped look somewhat larger than they are, and their intervals are those of a fixed number of episodes."
)
CRITIC = (
    "The time-only and the constant predictor see no image: the training targets by time in the episode, and all of them. A critic that "
    "does not beat the time-only predictor has learned nothing about outcomes that a clock does not know. A critic that is much better on "
    "training frames than held out over-fits; that is said here where the gap is more than a fifth of the held-out error. Held-out data "
    "that are harder than the training data widen it, too. Bin accuracy: the most likely bin is the target's; bins are narrow, so it is "
    "low. Success AUC: the chance that the value ranks a frame of a success above one of a failure at the same tenth of the episode, mean "
    "over the tenths. All numbers: evaluation.json."
)
ENSEMBLE = (
    "A progress critic sees two frames of an episode and says which bin their distance in time falls into, forward or backward. Each "
    "held-out pair is asked in both orders, so that the mean score is 0 for a critic that treats both alike. The majority sees no image: "
    "it says what was most frequent in training. The first table counts pairs of the held-out episodes that a critic could have learned "
    "from (of rollouts the successes, unless only_success is off), the one by outcome all. All numbers: evaluation.json."
)
CONTROL = (
    "Did the labels help? Each pair differs in what is stated and in nothing else: the same data, model, steps, seed and guidance (of the "
    "same weights, the guidance), the same initial states. "
    "What an arm gains over the start is not what its labels gained: that is the difference to the control whose labels are shuffled. "
    "Significant when p is below 0.05 divided by the number of these pairs."
)
LABEL = (
    "A frame is positive when its advantage reaches the threshold, when it belongs to a demonstration, or, by option, to an intervention."
)
SCORE = (
    "A frame is positive when the least score of any member is above the threshold, when it belongs to a demonstration of which no share "
    "is asked, or, by option, to an intervention. A frame that lies less than its look-ahead before the end of its episode has the score "
    "of the last one that does not; in an episode too short for any, none is positive by its score."
)
THRESHOLD = (
    "Interval of a threshold: 95 % of the thresholds that come out when whole episodes are drawn anew with replacement, 200 times. A wide "
    "one says that other rollouts of the same kind would have given other labels."
)
OVER_TIME = (
    "Failures should turn dark towards their end. Demonstrations are positive throughout unless a share was asked of them; corrections "
    "count with the outcome of their episode."
)
FORCED = (
    "By threshold: what the advantage or score alone makes positive. Forced beyond it: demonstrations, and corrections where "
    "intervention_positive is on. Policies learn from the sum."
)
AGREEMENT = (
    "Share of equal labels on the frames of common rollouts without corrections, which are forced alike; \N{GREEK SMALL LETTER KAPPA}: "
    "Cohen's, what of it is beyond chance (0: none, 1: all)."
)
IMPORT = (
    "These carry no lineage: nothing says which critic, parameters or data made them. Each of their rows was found in the dataset as it is "
    "now, exactly once. Labels are taken as they are, without threshold; demonstrations and corrections may be negative."
)
POLICY = (
    "Loss: flow-matching error in normalised action units, mean over the last tenth of training; the next two are of fixed frames and "
    "noise at the last evaluation. Indicator dropped: the realised rate among the samples that could show it. Flip test: mean distance (L2 "
    "a step, normalised action units) between the actions sampled with the positive indicator and without, for the same frames and noise, "
    "beside the distance between two noises without it; 0 means that the indicator is ignored."
)
BRANCH = "All training samples by their label and by what their prompt showed of it; loss as above, over the samples of the branch."
STAGE = (
    "What the experiment file assigns; a stage reads no other dataset. Checked before anything runs: held-out datasets are not trained on, "
    "and no initial state of an evaluation or of a collected held-out dataset occurs in training data collected on the same task."
)
LINEAGE = "Each artefact states what made it; every consumer checks this before use. Digests are SHA-256, first 12 digits."
GRAPH = (
    "Snakemake's own rule graph of this experiment: the rule at the lower end of a line reads what the one at its upper end "
    "writes. Pale: a longer way says the same. Dashed: upwards, as from a policy that collects data."
)
TIMES = "As Snakemake measured the last run of each job: wall time, and the most memory that was resident. Short jobs are not measured."
