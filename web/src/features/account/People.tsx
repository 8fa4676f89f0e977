import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import { useMay } from "@/base/account";
import { formatCount, formatTime } from "@/base/format";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { TokenTable } from "@/features/account/Tokens";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/account/Account.module.css";
import { accountTexts as texts } from "@/texts";

/** For operators: who uses the server, as what, from where, with which tokens. */
export function People() {
  const people = useQuery({
    queryKey: ["people"],
    queryFn: () => getJson<Document<"People">>("/people"),
    refetchInterval: 15_000,
  });
  const mayEnd = useMay("admin");
  const document = people.data;
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]} data-testid="people">
        <div className={pageStyles["page-line"]}>
          <h1>{texts.people}</h1>
          {document && (
            <p className={ui["muted"]}>
              {texts.howPeopleSignIn(
                document.mode,
                texts.privacy[document.privacy] ?? document.privacy,
              )}
            </p>
          )}
        </div>
        {people.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {people.error.message}
          </p>
        )}
        {document && (
          <>
            <Users rows={document.people} />
            <h2>{texts.sessions(formatCount(document.sessions.length))}</h2>
            {document.sessions.length > 0 && <Sessions rows={document.sessions} mayEnd={mayEnd} />}
            <h2>{texts.tokens(formatCount(document.tokens.length))}</h2>
            {document.tokens.length > 0 && (
              <TokenTable tokens={document.tokens} mayRevoke={mayEnd} withUser />
            )}
          </>
        )}
      </main>
    </div>
  );
}

function Users({ rows }: { rows: readonly Document<"PersonRow">[] }) {
  return (
    <div className={pageStyles["page-scroll"]}>
      <table className={pageStyles["page-table"]}>
        <thead>
          <tr>
            <th>{texts.user}</th>
            <th>{texts.role}</th>
            <th>{texts.groups}</th>
            <th>{texts.lastSeen}</th>
            <th>{texts.sessionsWord}</th>
            <th>{texts.tokensWord}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.user}>
              <td>
                <PageLink href={`/about?kind=user&name=${encodeURIComponent(row.user)}`}>
                  {row.user}
                </PageLink>
              </td>
              <td>{texts.roles[row.role] ?? row.role}</td>
              <td>{row.groups.join(", ")}</td>
              <td className={styles["time"]}>
                {row.seen_ms === null ? texts.notSinceTheStart : formatTime(row.seen_ms)}
              </td>
              <td>{formatCount(row.sessions)}</td>
              <td>{formatCount(row.tokens)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Sessions({ rows, mayEnd }: { rows: readonly Document<"SessionRow">[]; mayEnd: boolean }) {
  const client = useQueryClient();
  const end = useMutation({
    mutationFn: (id: string) => remove(`/sessions/${encodeURIComponent(id)}`),
    onSuccess: () => client.invalidateQueries({ queryKey: ["people"] }),
  });
  return (
    <div className={pageStyles["page-scroll"]}>
      <table className={pageStyles["page-table"]}>
        <thead>
          <tr>
            <th>{texts.user}</th>
            <th>{texts.from}</th>
            <th>{texts.since}</th>
            <th>{texts.lastSeen}</th>
            <th>{texts.endsUnlessUsed}</th>
            {mayEnd && <th>{texts.change}</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td>{row.user}</td>
              <td>{row.peer}</td>
              <td className={styles["time"]}>{formatTime(row.since_ms)}</td>
              <td className={styles["time"]}>{formatTime(row.seen_ms)}</td>
              <td className={styles["time"]}>{formatTime(row.ends_ms)}</td>
              {mayEnd && (
                <td>
                  {row.is_own ? (
                    <span className={ui["muted"]}>{texts.thisBrowser}</span>
                  ) : (
                    <button
                      type="button"
                      className={ui["button"]}
                      disabled={end.isPending}
                      onClick={() => end.mutate(row.id)}
                    >
                      {texts.endSession}
                    </button>
                  )}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {end.isError && <p role="alert">{end.error.message}</p>}
    </div>
  );
}
