import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { useState } from "react";
import { samePage, signIn } from "@/api/arrival";
import { PREFIX } from "@/api/prefix";
import { useCurrentUser } from "@/base/account";
import { navigate } from "@/base/router";
import { Logo } from "@/base/ui/PageHead";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/account/Account.module.css";
import { accountTexts as texts } from "@/texts";

/** How one signs in here; afterwards the page that was asked for. */
export function SignIn({ page = "/" }: { page?: string }) {
  const me = useCurrentUser().data;
  const ways = me?.sign_in;
  if (!me || !ways) return null;
  return (
    <main className={styles["sign-in"]} data-testid="sign-in">
      <Logo />
      <h1>{texts.signInToMarey}</h1>
      {ways.provider !== "" && (
        <a
          className={`${ui["button"]} ${ui["primary"]}`}
          href={`${PREFIX}${ways.provider}?page=${encodeURIComponent(samePage(page))}`}
          data-testid="provider"
        >
          {texts.continueWith(ways.label)}
        </a>
      )}
      {ways.mode === "proxy" && <p>{texts.theProxySignsIn}</p>}
      {ways.mode === "none" && <p>{texts.openThePrintedLink}</p>}
      {ways.takes_token &&
        (ways.provider === "" ? (
          <TokenForm page={page} mode={ways.mode} />
        ) : (
          <details>
            <summary>{texts.withAToken}</summary>
            <TokenForm page={page} mode={ways.mode} />
          </details>
        ))}
    </main>
  );
}

function TokenForm({ page, mode }: { page: string; mode: string }) {
  const [token, setToken] = useState("");
  const client = useQueryClient();
  const begin = useMutation({
    mutationFn: () => signIn(token.trim()),
    onSuccess: async () => {
      setToken("");
      await client.invalidateQueries();
      navigate(samePage(page), { replace: true });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    begin.mutate();
  };
  return (
    <form onSubmit={submit}>
      <label className={ui["field"]}>
        <span>{mode === "none" ? texts.ownersKey : texts.apiToken}</span>
        <input
          type="password"
          autoComplete="off"
          value={token}
          maxLength={4096}
          onChange={(event) => setToken(event.target.value)}
          data-testid="token"
        />
      </label>
      <button
        type="submit"
        className={ui["button"]}
        disabled={token.trim() === "" || begin.isPending}
      >
        {texts.signIn}
      </button>
      {begin.isError && <p role="alert">{begin.error.message}</p>}
    </form>
  );
}

/** The page of its own. */
export function SignInPage() {
  return <SignIn />;
}
