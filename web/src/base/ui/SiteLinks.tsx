import { useQuery } from "@tanstack/react-query";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import styles from "@/base/ui/SiteLinks.module.css";
import { baseTexts as texts } from "@/texts";

type Link = Document<"PageLink">;

/** Links of a page to the site's own Grafana, W&B, logs and so on; nothing where none are set up. */
export function SiteLinks({ kind, name }: { kind: string; name: string }) {
  const links = useQuery({
    queryKey: ["links", kind, name],
    queryFn: ({ signal }) => getJson<Link[]>(`/links/${kind}`, { name }, signal),
    staleTime: 600_000,
  });
  if (!links.data || links.data.length === 0) return null;
  return (
    <ul className={styles["links"]} aria-label={texts.siteLinks}>
      {links.data.map((link) => (
        <li key={link.title}>
          <a href={link.url} target="_blank" rel="noreferrer">
            {link.title} ↗
          </a>
        </li>
      ))}
    </ul>
  );
}
