/** What a unit can be grouped, sorted, filtered and coloured by: facts of the model, and every metric. */

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
  text("pool", "Pool", "Whether the unit is a GPU or a waiting request"),
  text("cluster", "Cluster", "The cluster"),
  text("partition", "Partition", "The scheduler's partition of the GPU, or the one asked for"),
  text("rack", "Rack", "Where the host stands"),
  text("host", "Host", "The machine"),
  text("known_by", "Known by", "Who speaks of the host: scheduler, metrics or both"),
  text("gpu", "GPU", "host:index"),
  text("model", "GPU type", "The GPU's model"),
  text("resource_type", "Resource type", "GPU model and count per host"),
  text("state", "State", "idle, allocated, drained, down, failed or waiting"),
  text("reason", "Reason", "Why the GPU is out of work, or why the workload waits"),
  text("user", "User", "Who runs it"),
  text("project", "Project", "The project it is charged to"),
  text("experiment", "Experiment", "The experiment it belongs to"),
  text("workload", "Workload", "The workload's id"),
  text("name", "Workload name", "What its user called it"),
  text("qos", "Quality of service", "The scheduler's class of service"),
  number("index", "GPU index", "", "Index of the GPU in its host"),
  number("gpus_requested", "GPUs of the workload", "GPUs", "How many GPUs the workload asked for"),
  number("waiting_s", "Waiting time", "s", "Since it was submitted"),
  number("running_s", "Running time", "s", "Since it was started"),
  number("priority", "Priority", "", "The scheduler's priority"),
  number("queue_position", "Place in the queue", "", "Order in which the scheduler considers it; 1 is next"),
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
