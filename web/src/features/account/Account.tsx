import { useMutation, useQuery } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { useState } from "react";
import { getJson, postJson } from "@/api/client";
import type { Document } from "@/api/documents";
import type { CurrentUser } from "@/base/account";
import { useCurrentUser, workingName } from "@/base/account";
import { formatTime } from "@/base/format";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { SignIn } from "@/features/account/SignIn";
import { OwnTokens } from "@/features/account/Tokens";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/account/Account.module.css";
import { accountTexts as texts } from "@/texts";

/** Who one is here: rights, tokens, commands, and what was found in one's own work. */
export function Account() {
  const me = useCurrentUser().data;
  if (!me) return null;
  if (me.user === "") return <SignIn page="/account" />;
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <div className={pageStyles["page-line"]}>
          <h1>{me.user}</h1>
          {workingName(me) !== "" && (
            <PageLink href={`/about?kind=user&name=${encodeURIComponent(me.user)}`}>
              {texts.myWork}
            </PageLink>
          )}
        </div>
        <Rights me={me} />
        <OwnNotifications />
        {me.permissions.includes("account") && (
          <>
            <OwnTokens me={me} />
            <CommandForm />
          </>
        )}
      </main>
    </div>
  );
}

function Rights({ me }: { me: CurrentUser }) {
  const facts: [string, string][] = [
    [texts.role, texts.roles[me.role] ?? me.role],
    [texts.mayWord, me.permissions.map((one) => texts.permissions[one] ?? one).join(", ")],
    [texts.groups, me.groups.join(", ")],
    [texts.projects, me.projects.join(", ")],
    [texts.whatIsShownOfOthers, texts.privacy[me.privacy] ?? me.privacy],
    [texts.signedInUntil, me.ends_ms === null ? "" : formatTime(me.ends_ms)],
  ];
  return (
    <dl className={styles["facts"]}>
      {facts
        .filter(([, value]) => value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function OwnNotifications() {
  const notices = useQuery({
    queryKey: ["my-notifications"],
    queryFn: () => getJson<Document<"OwnNotices">>("/my-notifications"),
    refetchInterval: 30_000,
  });
  const rows = notices.data?.rows ?? [];
  return (
    <section data-testid="my-notifications">
      <h2>{texts.myNotifications}</h2>
      {notices.isError && <p role="alert">{notices.error.message}</p>}
      {notices.data && rows.length === 0 && (
        <p className={ui["muted"]}>{texts.nothingFoundInYourWork}</p>
      )}
      {rows.length > 0 && (
        <div className={pageStyles["page-scroll"]}>
          <table className={pageStyles["page-table"]}>
            <thead>
              <tr>
                <th>{texts.when}</th>
                <th>{texts.finding}</th>
                <th>{texts.workload}</th>
                <th>{texts.state}</th>
                <th>{texts.toldTo}</th>
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, 100).map((row) => (
                <tr key={row.finding}>
                  <td>{formatTime(row.time_ms)}</td>
                  <td>
                    <PageLink href={`/findings?id=${encodeURIComponent(row.finding)}&state=all`}>
                      {row.title || row.rule}
                    </PageLink>
                  </td>
                  <td>
                    <PageLink href={`/workload?id=${encodeURIComponent(row.workload)}`}>
                      {row.workload}
                    </PageLink>
                  </td>
                  <td>{row.status === "firing" ? texts.open : texts.over}</td>
                  <td className={ui["muted"]}>
                    {row.muted ? texts.muted : row.receivers.join(", ") || texts.nobody}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Lets a command on a terminal act as oneself, once its code has been compared. */
function CommandForm() {
  const [code, setCode] = useState("");
  const find = useMutation({
    mutationFn: () => postJson<Document<"CommandAsking">>("/sign-in/commands/find", { code }),
  });
  const confirm = useMutation({
    mutationFn: () => postJson<Document<"CommandAsking">>("/sign-in/commands/confirm", { code }),
    onSuccess: () => {
      setCode("");
      find.reset();
    },
  });
  const asking = find.data;
  const failed = find.error ?? confirm.error;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    confirm.reset();
    find.mutate();
  };
  return (
    <section data-testid="command-sign-in">
      <h2>{texts.signACommandIn}</h2>
      <p className={ui["muted"]}>{texts.typeTheCode}</p>
      <form className={pageStyles["page-line"]} onSubmit={submit}>
        <label className={ui["field"]}>
          <span>{texts.code}</span>
          <input
            type="text"
            value={code}
            maxLength={20}
            autoComplete="off"
            onChange={(event) => {
              setCode(event.target.value);
              find.reset();
            }}
          />
        </label>
        <button type="submit" className={ui["button"]} disabled={code.trim() === ""}>
          {texts.checkTheCode}
        </button>
      </form>
      {asking && (
        <div className={styles["confirm"]} role="group" aria-label={texts.signACommandIn}>
          <p>{texts.letItActAsYou(asking.place || texts.unknownMachine, asking.peer)}</p>
          <button
            type="button"
            className={`${ui["button"]} ${ui["primary"]}`}
            onClick={() => confirm.mutate()}
          >
            {texts.letIt}
          </button>
        </div>
      )}
      {confirm.data && <p role="status">{texts.theCommandIsSignedIn}</p>}
      {failed && <p role="alert">{failed.message}</p>}
    </section>
  );
}
