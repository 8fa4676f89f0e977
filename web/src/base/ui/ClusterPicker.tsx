import { chosenCluster, knownClusters } from "@/api/chosen";
import { withPrefix } from "@/api/prefix";
import { usePathname } from "@/base/router";
import { Select } from "@/base/ui/controls";
import styles from "@/base/ui/ClusterPicker.module.css";
import { baseTexts as texts } from "@/texts";

/** Which cluster the page is about; only where there are several. Another one is another page. */
export function ClusterPicker() {
  const names = knownClusters();
  const path = usePathname();
  if (names.length < 2) return null;
  return (
    <div className={styles["cluster-picker"]} data-testid="cluster-picker">
      <Select
        label={texts.cluster}
        hideLabel
        value={chosenCluster()}
        options={names.map((name) => ({ value: name, label: name }))}
        onChange={(name) =>
          location.assign(
            `${withPrefix(path === "/workload" ? "/" : path)}?cluster=${encodeURIComponent(name)}`,
          )
        }
      />
    </div>
  );
}
