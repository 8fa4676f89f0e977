import { chosenCluster, knownClusters } from "@/api/chosen";
import { Select } from "@/base/ui/controls";

/** Which cluster the page is about; only where there are several. Another one is another page. */
export function ClusterPicker() {
  const names = knownClusters();
  if (names.length < 2) return null;
  return (
    <div className="cluster-picker" data-testid="cluster-picker">
      <Select label="Cluster" hideLabel value={chosenCluster()} options={names.map((name) => ({ value: name, label: name }))} onChange={(name) => location.assign(`${location.pathname === "/workload" ? "/" : location.pathname}?cluster=${encodeURIComponent(name)}`)} />
    </div>
  );
}
