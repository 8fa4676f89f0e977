/** What stands at the top of every page: the name, the pages, and what the page adds. */

import type { ReactNode, RefObject } from "react";
import { useContext, useLayoutEffect, useRef, useState } from "react";
import { chooseClock, chosenClock, formatMoment } from "@/base/clock";
import { usePathname } from "@/base/router";
import { useTheme } from "@/base/theme";
import { AccountMenu } from "@/base/ui/AccountMenu";
import { ClusterPicker } from "@/base/ui/ClusterPicker";
import { IconButton, Popover } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import type { PageEntry } from "@/base/ui/navigation";
import { PagesContext } from "@/base/ui/navigation";
import { PageLink } from "@/base/ui/PageLink";
import styles from "@/base/ui/PageHead.module.css";
import pageStyles from "@/base/ui/page.module.css";
import { baseTexts as texts } from "@/texts";

/** The pages of the app; the present one is marked, and what does not fit stands in the menu. */
export function Nav() {
  const entries = useContext(PagesContext);
  const inBar = entries.filter((entry) => !entry.more);
  const bar = useRef<HTMLDivElement>(null);
  const wrapped = useWrapped(bar);
  const more = entries.filter((entry) => entry.more || wrapped.has(entry.path));
  return (
    <nav className={styles["pages"]} aria-label={texts.pages}>
      <div className={styles["entries"]} ref={bar}>
        <Entries entries={inBar} hidden={wrapped} />
      </div>
      {more.length > 0 && (
        <Popover
          label={texts.morePages}
          trigger={
            <button type="button" className={styles["more"]}>
              {texts.more} <Icon name="down" size={12} />
            </button>
          }
        >
          <div className={styles["menu"]}>
            <Entries entries={more} />
            <ClockChoice />
          </div>
        </Popover>
      )}
    </nav>
  );
}

/** How moments are written, each choice in its own form. */
function ClockChoice() {
  const [now] = useState(() => Date.now());
  const chosen = chosenClock();
  return (
    <fieldset className={styles["clock"]}>
      <legend>{texts.datesAndTimes}</legend>
      {CLOCKS.map((clock) => (
        <label key={clock}>
          <input
            type="radio"
            name="clock"
            checked={clock === chosen}
            onChange={() => chooseClock(clock)}
          />
          {formatMoment(now, clock)}
        </label>
      ))}
    </fieldset>
  );
}

const CLOCKS = ["locale", "iso"] as const;
const NONE: ReadonlySet<string> = new Set();

/** Return the paths of the links that did not fit on the first line of a bar. */
function useWrapped(bar: RefObject<HTMLDivElement | null>): ReadonlySet<string> {
  const [wrapped, setWrapped] = useState(NONE);
  useLayoutEffect(() => {
    const line = bar.current;
    if (!line) return;
    const measure = () => {
      const shown = [...line.children].filter((link) => link.getClientRects().length > 0);
      const first = shown[0]?.getBoundingClientRect().bottom ?? 0;
      const below = shown.filter((link) => link.getBoundingClientRect().top >= first);
      const paths = below.map((link) => link.getAttribute("data-path") ?? "");
      setWrapped((before) => (paths.join() === [...before].join() ? before : new Set(paths)));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(line);
    return () => observer.disconnect();
  }, [bar]);
  return wrapped;
}

interface EntriesProps {
  entries: readonly PageEntry[];
  hidden?: ReadonlySet<string>;
}

function Entries({ entries, hidden = NONE }: EntriesProps) {
  const here = usePathname();
  return entries.map(({ path, label }) => (
    <PageLink
      key={path}
      href={path}
      data-path={path}
      data-wrapped={hidden.has(path) || undefined}
      {...(path === here ? { "aria-current": "page" } : {})}
    >
      {label}
    </PageLink>
  ));
}

/** Tells the app to open its search. */
export const OPEN_SEARCH = "marey-search";

export function Logo() {
  return (
    <PageLink className={styles["logo"]} href="/" aria-label={texts.mareyGoToTheOverview}>
      <svg width="22" height="22" viewBox="0 0 16 16" aria-hidden="true">
        <path d="M2 13.500 5.800 2.500M6.500 13.500l3.800-11M11 13.500l3.800-11" />
      </svg>
      {texts.marey}
    </PageLink>
  );
}

export function PageHead({ children }: { children?: ReactNode }) {
  const { theme, setTheme } = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <header className={styles["page-head"]}>
      <Logo />
      <Nav />
      <ClusterPicker />
      <span className={pageStyles["spring"]} />
      {children}
      <IconButton
        icon="search"
        label={texts.searchCtrlK}
        onClick={() => window.dispatchEvent(new Event(OPEN_SEARCH))}
      />
      <IconButton
        icon={theme === "dark" ? "sun" : "moon"}
        label={texts.switchToTheme(other)}
        onClick={() => setTheme(other)}
      />
      <AccountMenu />
    </header>
  );
}
