/** What a unit can be grouped, sorted, filtered and coloured by: facts of the model, and every metric. */

import { baseTexts as texts } from "@/texts";
export interface Attribute {
  id: string;
  label: string;
  kind: "text" | "number";
  unit: string;
  description: string;
  min: number | null;
  max: number | null;
  /** Metrics come by subscription; facts are always there. */
  metric: boolean;
}

export interface Metric {
  id: string;
  label: string;
  unit: string;
  min: number;
  max: number;
  resolution: number;
  kind: string;
  entity: string;
  description: string;
}

function text(id: string, label: string, description: string): Attribute {
  return { id, label, kind: "text", unit: "", description, min: null, max: null, metric: false };
}

function number(id: string, label: string, unit: string, description: string): Attribute {
  return { id, label, kind: "number", unit, description, min: 0, max: null, metric: false };
}

export const FACTS: readonly Attribute[] = [
  text("pool", texts.pool, texts.gpuOrWaitingRequest),
  text("cluster", texts.cluster, texts.clusterTheUnitBelongsTo),
  text("partition", texts.partition, texts.schedulerPartitionOfTheGpuOr),
  text("rack", texts.rack, texts.rackTheHostIsIn),
  text("host", texts.host, texts.hostOfTheGpu),
  text("known_by", texts.reportedBy, texts.whichSourcesReportTheHostScheduler),
  text("gpu", "GPU", "host:index"),
  text("model", texts.gpuType, texts.gpuModel),
  text("resource_type", texts.resourceType, texts.gpuModelAndNumberOfGpus),
  text("state", texts.state, texts.idleAllocatedDrainedDownFailedOr),
  text("reason", texts.reason, texts.whyTheGpuIsUnavailableOr),
  text("user", texts.user, texts.userWhoSubmittedTheWorkload),
  text("project", texts.project, texts.projectTheWorkloadIsChargedTo),
  text("experiment", texts.experiment, texts.experimentTheWorkloadBelongsTo),
  text("workload", texts.workload, texts.workloadId),
  text("name", texts.workloadName, texts.nameGivenByTheUser),
  text("qos", texts.qualityOfService, texts.schedulerQualityOfServiceQos),
  number("index", texts.gpuIndex, "", texts.indexOfTheGpuWithinIts),
  number("gpus_requested", texts.workloadSize, "GPUs", texts.numberOfGpusTheWorkloadRequested),
  number("waiting_s", texts.waitTime, "s", texts.timeSinceSubmission),
  number("running_s", texts.runTime, "s", texts.timeSinceStart),
  number("priority", texts.priority, "", texts.schedulerPriority),
  number("queue_position", texts.queuePosition, "", texts.orderInWhichTheSchedulerConsiders),
];

const LEVELS = new Set(["mem_share", "power_share", "fan", "host_mem_share"]);

/** Whether a low value is what should catch the eye: a GPU that does little, rather than one that does much. */
export function lowIsNotable(attribute: Attribute): boolean {
  return attribute.metric && attribute.unit === "%" && !LEVELS.has(attribute.id);
}

/** Facts first, then the metrics in the catalogue's order. */
export function attributeList(metrics: readonly Metric[]): Attribute[] {
  return [
    ...FACTS,
    ...metrics.map((metric): Attribute => ({
      id: metric.id,
      label: metric.label,
      kind: "number",
      unit: metric.unit,
      description: metric.description,
      min: metric.min,
      max: metric.max,
      metric: true,
    })),
  ];
}
