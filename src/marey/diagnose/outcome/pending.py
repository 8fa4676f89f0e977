"""Why a workload does not start: what schedulers' reasons mean, and what would help."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marey.model.faults import FaultKind


@dataclass(frozen=True, slots=True)
class WaitReason:
    """A reason in words: whether waiting helps, and what does."""

    kind: FaultKind
    text: str
    next: str


_B, _W = FaultKind.BLOCKED, FaultKind.WAITING
# Looked for in this order in what the scheduler says (Slurm's reasons, Kubernetes' messages).
_REASONS: tuple[tuple[str, WaitReason], ...] = (
    ("dependencyneversatisfied", WaitReason(_B, "The job that it depends on did not end as "
     "required, so it will never start.", "Cancel it, or clear the dependency "
     "(scontrol update job=ID dependency=).")),
    ("dependency", WaitReason(_W, "It waits for another job to end.",
     "Nothing to do; look at the job that it depends on.")),
    ("jobheldadmin", WaitReason(_B, "An administrator holds it.", "Ask the administrators why.")),
    ("jobhelduser|userhold", WaitReason(_B, "Its owner holds it.",
     "Release it (scontrol release ID).")),
    ("specialexit", WaitReason(_B, "It ended with an exit code that puts it on hold.",
     "Look at its last try, then release it (scontrol release ID).")),
    ("jobholdmaxrequeue|launchfailedrequeuedheld", WaitReason(_B, "It was requeued too often "
     "after failing to launch, and is held now.", "Look at the node of the last try, then release "
     "it (scontrol release ID).")),
    ("badconstraints|invalidqos|invalidaccount|accountnotallowed|qosnotallowed",
     WaitReason(_B, "The request names something that does not exist or is not allowed.",
     "Correct constraint, account or QOS of the request.")),
    ("partitiontimelimit|partitionnodelimit|perjob|maxmemperlimit",
     WaitReason(_B, "It asks for more than the partition, account or QOS allows one job.",
     "Ask for less time or less of what is limited, or use another partition or QOS.")),
    ("qosmin", WaitReason(_B, "It asks for less than the QOS demands of a job.",
     "Ask for more, or use another QOS.")),
    ("partitionconfig|topologynotavail|requestednodeconfiguration", WaitReason(_B,
     "Nothing in the partition is made as it asks.", "Compare the request with the nodes.")),
    ("reservationdeleted", WaitReason(_B, "The reservation that it waits for was deleted.",
     "Clear the reservation (scontrol update job=ID reservation=).")),
    ("deadline", WaitReason(_B, "It cannot end before the deadline that it was given.",
     "Ask for less time, or submit it again with a later deadline.")),
    ("burstbuffer", WaitReason(_W, "It waits for its data to be staged in.",
     "Nothing to do; look at the burst buffer if it lasts.")),
    ("licenses", WaitReason(_W, "It waits for licences.", "Nothing to do.")),
    ("persistentvolumeclaim.*not found|unbound immediate persistentvolumeclaim",
     WaitReason(_B, "A volume that it needs is not there.",
     "Look at its claims (kubectl get pvc): name, storage class and zone.")),
    ("partitiondown|partitioninactive", WaitReason(_B, "Its partition takes no work now.",
     "Use another partition, or wait until the administrators open it.")),
    ("nodedown|reqnodenotavail|nodesrequiredforjobare", WaitReason(_W, "Nodes that it needs are "
     "down, drained or reserved.", "Do not insist on these nodes; look at who reserved them.")),
    ("begintime", WaitReason(_W, "It is not to start before a requested time.",
     "Nothing to do.")),
    ("reservation", WaitReason(_W, "It waits for its reservation to begin.", "Nothing to do.")),
    ("maxgrestrunmins|assocgrp|assocmax|qosgrp|qosmax|maxjobs|maxtres|exceeded quota|grptres|"
     "peraccount|association\\w*limit|qos(job|resource|time)limit|qosusagethreshold",
     WaitReason(_W, "A limit of its user, account or QOS is used up for now.",
     "Wait until other work of the same account ends, or ask for a higher limit.")),
    ("jobarraytasklimit", WaitReason(_W, "Its array runs as many tasks at once as it may.",
     "Nothing to do.")),
    # Beside nodes that are full, the taint of a control plane says nothing about this pod.
    ("insufficient (nvidia|amd|gpu|intel)", WaitReason(_W, "No node has enough free GPUs.",
     "Wait, or ask for fewer GPUs per pod.")),
    ("insufficient (cpu|memory|ephemeral|pods)", WaitReason(_W, "No node has enough free "
     "processors or memory beside its GPUs.", "Ask for fewer processors or less memory per pod.")),
    ("untolerated taint|didn't match.*(affinity|selector)", WaitReason(_B, "No node fits what it "
     "asks for: taints or selectors exclude them all.", "Compare node selector, affinity and "
     "tolerations with the nodes' labels and taints.")),
    ("unschedulable", WaitReason(_W, "The scheduler finds no place for it.",
     "Read the scheduler's message.")),
    ("schedulinggated|suspend|kueue", WaitReason(_W, "It is held back until a queue admits it.",
     "Look at the queue that it waits in.")),
    ("priority", WaitReason(_W, "Others are ahead of it in the queue.", "Nothing to do.")),
    ("resources", WaitReason(_W, "It waits for free GPUs.", "Nothing to do; asking for fewer "
     "GPUs or less time may let it start earlier.")),
)  # fmt: skip
# What is said of a reason that is not known here.
OTHER_REASON = WaitReason(_W, "It waits to be scheduled.", "Nothing to do yet.")
_STUCK: tuple[tuple[str, WaitReason], ...] = (
    ("imagepullbackoff|errimagepull|invalidimagename", WaitReason(_B, "Its container image cannot "
     "be pulled, while it holds its GPUs.", "Check the image's name and the pull secret.")),
    ("createcontainerconfigerror|createcontainererror|failedmount", WaitReason(_B, "Its container "
     "cannot be created, while it holds its GPUs.", "Check the secrets, config maps and volumes "
     "that it names.")),
    ("crashloopbackoff", WaitReason(FaultKind.SCRIPT_ERROR, "Its container crashes again and "
     "again, while it holds its GPUs.", "Read the log of the last try (kubectl logs -p).")),
)  # fmt: skip


def explain_waiting(reason: str) -> WaitReason:
    """Return the meaning of the scheduler's reason for a workload that has not started."""
    return _find_reason(reason, _REASONS) or _find_reason(reason, _STUCK) or OTHER_REASON


def find_stuck_reason(reason: str) -> WaitReason | None:
    """Return why a workload that holds GPUs does not work, if the scheduler says so."""
    return _find_reason(reason, _STUCK)


def _find_reason(reason: str, listed: tuple[tuple[str, WaitReason], ...]) -> WaitReason | None:
    said = reason.lower()
    flat = said.replace("_", "").replace(" ", "")
    for pattern, meaning in listed:
        if re.search(pattern, said) or re.search(pattern, flat):
            return meaning
    return None
