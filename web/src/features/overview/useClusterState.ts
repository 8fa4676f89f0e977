import { useEffect, useState } from "react";
import type { ClusterState } from "@/base/units";
import { useShared } from "@/features/overview/context";

/** The cluster's state, anew with every message that is shown. */
export function useClusterState(): ClusterState | null {
  const { session } = useShared();
  const [state, setState] = useState<ClusterState | null>(null);
  useEffect(() => session.listen((next) => setState(next)), [session]);
  return state;
}
