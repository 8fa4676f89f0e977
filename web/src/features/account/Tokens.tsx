import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { useState } from "react";
import { getJson, postJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import type { CurrentUser } from "@/base/account";
import { formatTime } from "@/base/format";
import { Select } from "@/base/ui/controls";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/account/Account.module.css";
import { accountTexts as texts } from "@/texts";

type Token = Document<"TokenRow">;

const SCOPES = ["read", "progress:write", "contribute", "operate", "admin"];
const LIVES = ["1d", "30d", "90d", "365d"];

/** One's own tokens: for scripts and training runs. */
export function OwnTokens({ me }: { me: CurrentUser }) {
  const tokens = useQuery({
    queryKey: ["tokens"],
    queryFn: () => getJson<Token[]>("/tokens"),
  });
  return (
    <section data-testid="tokens">
      <h2>{texts.myTokens}</h2>
      <p className={ui["muted"]}>{texts.aTokenLetsAScript}</p>
      {tokens.isError && <p role="alert">{tokens.error.message}</p>}
      {tokens.data && tokens.data.length > 0 && <TokenTable tokens={tokens.data} mayRevoke />}
      <NewToken me={me} />
    </section>
  );
}

export function TokenTable({
  tokens,
  mayRevoke,
  withUser = false,
}: {
  tokens: readonly Token[];
  mayRevoke: boolean;
  withUser?: boolean;
}) {
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: (id: string) => remove(`/tokens/${encodeURIComponent(id)}`),
    onSuccess: () =>
      Promise.all(
        [["tokens"], ["people"]].map((queryKey) => client.invalidateQueries({ queryKey })),
      ),
  });
  return (
    <div className={pageStyles["page-scroll"]}>
      <table className={pageStyles["page-table"]}>
        <thead>
          <tr>
            {withUser && <th>{texts.user}</th>}
            <th>{texts.name}</th>
            <th>{texts.permits}</th>
            <th>{texts.lastUsed}</th>
            <th>{texts.validUntil}</th>
            {mayRevoke && <th>{texts.change}</th>}
          </tr>
        </thead>
        <tbody>
          {tokens.map((token) => (
            <tr key={token.id}>
              {withUser && <td>{token.user}</td>}
              <td>{token.name}</td>
              <td className={styles["words"]}>
                {token.scopes.map((scope) => texts.permissions[scope] ?? scope).join(", ")}
                {token.workload && texts.ofWorkload(token.workload)}
              </td>
              <td className={styles["time"]}>
                {token.used_ms === null ? texts.never : formatTime(token.used_ms)}
              </td>
              <td className={styles["time"]}>{formatTime(token.expires_ms)}</td>
              {mayRevoke && (
                <td>
                  <button
                    type="button"
                    className={ui["button"]}
                    aria-label={texts.revokeToken(token.name)}
                    disabled={revoke.isPending}
                    onClick={() => revoke.mutate(token.id)}
                  >
                    {texts.revoke}
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {revoke.isError && <p role="alert">{revoke.error.message}</p>}
    </div>
  );
}

function NewToken({ me }: { me: CurrentUser }) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState("read");
  const [life, setLife] = useState("90d");
  const [workload, setWorkload] = useState("");
  const client = useQueryClient();
  const create = useMutation({
    mutationFn: () =>
      postJson<Document<"NewToken">>("/tokens", {
        name: name.trim(),
        scopes: [scope],
        life,
        workload: scope === "progress:write" ? workload.trim() : "",
      }),
    onSuccess: async () => {
      setName("");
      await client.invalidateQueries({ queryKey: ["tokens"] });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  const offered = SCOPES.filter((one) => me.permissions.includes(one));
  return (
    <form onSubmit={submit}>
      <div className={pageStyles["page-line"]}>
        <label className={ui["field"]}>
          <span>{texts.newToken}</span>
          <input
            type="text"
            value={name}
            maxLength={100}
            placeholder={texts.whatItIsFor}
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <Select
          label={texts.permits}
          value={scope}
          options={offered.map((value) => ({ value, label: texts.permissions[value] ?? value }))}
          onChange={setScope}
        />
        {scope === "progress:write" && (
          <label className={ui["field"]}>
            <span>{texts.onlyOfWorkload}</span>
            <input
              type="text"
              value={workload}
              maxLength={200}
              onChange={(event) => setWorkload(event.target.value)}
            />
          </label>
        )}
        <Select
          label={texts.validFor}
          value={life}
          options={LIVES.map((value) => ({ value, label: texts.lives[value] ?? value }))}
          onChange={setLife}
        />
        <button
          type="submit"
          className={ui["button"]}
          disabled={name.trim() === "" || create.isPending}
        >
          {texts.createToken}
        </button>
      </div>
      {create.isError && <p role="alert">{create.error.message}</p>}
      {create.data && (
        <p className={styles["secret"]} role="status">
          {texts.copyItNow}
          <code data-testid="new-token">{create.data.token}</code>
        </p>
      )}
    </form>
  );
}
