/** Who is looking: in the head of every page. */

import { signOut, useCurrentUser, workingName } from "@/base/account";
import { Popover, PopoverClose } from "@/base/ui/controls";
import { PageLink } from "@/base/ui/PageLink";
import styles from "@/base/ui/AccountMenu.module.css";
import ui from "@/base/ui/ui.module.css";
import { accountTexts as texts } from "@/texts";

export function AccountMenu() {
  const me = useCurrentUser().data;
  if (!me) return null;
  if (me.user === "")
    return (
      <PageLink
        className={`${ui["link"]} ${styles["signIn"]}`}
        href="/sign-in"
        data-testid="go-sign-in"
      >
        {texts.signIn}
      </PageLink>
    );
  return (
    <Popover
      label={texts.account}
      align="end"
      trigger={
        <button
          type="button"
          className={styles["account"]}
          aria-label={texts.accountOf(me.user)}
          data-testid="account"
        >
          <span aria-hidden="true">{me.user.slice(0, 1).toUpperCase()}</span>
        </button>
      }
    >
      <div className={`${ui["settings"]} ${styles["menu"]}`} data-testid="account-menu">
        <p>
          <strong>{me.user}</strong>
          <span className={ui["muted"]}>{texts.roles[me.role] ?? me.role}</span>
        </p>
        {workingName(me) !== "" && (
          <Entry href={`/about?kind=user&name=${encodeURIComponent(me.user)}`}>
            {texts.myWork}
          </Entry>
        )}
        <Entry href="/account">{texts.tokensAndNotifications}</Entry>
        {me.permissions.includes("operate") && <Entry href="/people">{texts.people}</Entry>}
        {me.permissions.includes("admin") && <Entry href="/audit">{texts.audit}</Entry>}
        {(me.by === "session" || (me.by === "proxy" && me.sign_in.signs_out)) && (
          <button type="button" className={ui["button"]} onClick={() => void signOut()}>
            {texts.signOut}
          </button>
        )}
      </div>
    </Popover>
  );
}

function Entry({ href, children }: { href: string; children: string }) {
  return (
    <PopoverClose asChild>
      <PageLink href={href}>{children}</PageLink>
    </PopoverClose>
  );
}
