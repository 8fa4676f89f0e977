/** What stands at the top of every page: the name, the pages, and what the page adds. */

import type { ReactNode } from "react";
import { inCluster } from "@/api/chosen";
import { useTheme } from "@/base/theme";
import { ClusterPicker } from "@/base/ui/ClusterPicker";
import { IconButton } from "@/base/ui/controls";

const PAGES = [
  { href: "/", label: "Overview" },
  { href: "/findings", label: "Findings" },
  { href: "/waste", label: "Waste" },
  { href: "/sources", label: "Sources" },
] as const;

/** The pages of the app; the present one is marked. */
export function Nav() {
  return (
    <nav className="pages" aria-label="Pages">
      {PAGES.map(({ href, label }) => (
        <a key={href} href={inCluster(href)} {...(location.pathname === href ? { "aria-current": "page" as const } : {})}>
          {label}
        </a>
      ))}
    </nav>
  );
}

export function Logo() {
  return (
    <a className="logo" href={inCluster("/")} aria-label="Marey, the overview">
      <svg width="22" height="22" viewBox="0 0 16 16" aria-hidden="true">
        <path d="M2 13.500 5.800 2.500M6.500 13.500l3.800-11M11 13.500l3.800-11" />
      </svg>
      Marey
    </a>
  );
}

export function PageHead({ children }: { children?: ReactNode }) {
  const { theme, setTheme } = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <header className="page-head">
      <Logo />
      <Nav />
      <ClusterPicker />
      <span className="spring" />
      {children}
      <IconButton icon={theme === "dark" ? "sun" : "moon"} label={`Use the ${other} theme`} onClick={() => setTheme(other)} />
    </header>
  );
}
