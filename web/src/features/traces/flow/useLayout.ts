import { useEffect, useRef, useState } from "react";
import type { FlowLayout } from "@/charts/flow/layout";
import type { ShownFlow } from "@/charts/flow/visible";
import { linkStages } from "@/charts/flow/visible";
import type { LayoutDone, LayoutJob } from "@/features/traces/flow/layout.worker";

/** The layout of a flow, made in a worker; the flow that it belongs to comes with it. */
export function useLayout(flow: ShownFlow | null): { flow: ShownFlow; layout: FlowLayout } | null {
  const worker = useRef<Worker | null>(null);
  const asked = useRef(0);
  const [made, setMade] = useState<{ flow: ShownFlow; layout: FlowLayout } | null>(null);
  useEffect(() => {
    const started = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.current = started;
    return () => started.terminate();
  }, []);
  useEffect(() => {
    if (!flow || !worker.current) return;
    const id = ++asked.current;
    worker.current.onmessage = ({ data }: MessageEvent<LayoutDone>) => {
      if (data.id === asked.current) setMade({ flow, layout: data.layout });
    };
    const seen = flow.edges.filter((edge) => !edge.quiet);
    const pulling = [
      ...seen.map(({ source, target }) => [source, target] as const),
      ...linkStages(flow.nodes, seen),
    ];
    const job: LayoutJob = {
      id,
      graph: {
        count: flow.nodes.length,
        lane: Int32Array.from(flow.nodes, (node) => node.lane),
        order: Float64Array.from(flow.nodes, (node) => node.order),
        source: Int32Array.from(pulling, ([source]) => source),
        target: Int32Array.from(pulling, ([, target]) => target),
      },
    };
    worker.current.postMessage(job);
  }, [flow]);
  return made;
}
