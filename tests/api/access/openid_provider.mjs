// A real OpenID provider on loopback: `node openid_provider.mjs WEB_FOLDER REDIRECT_URI`, then one line with its address.
// Whoever comes is signed in as the account that /control named last; /control can also replace the signing keys.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, redirectUri] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/package.json`));
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));

let account = { sub: "ada", preferred_username: "ada", groups: [] };
let provider;
let issuer;

function makeKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" };
}

function makeProvider() {
  const made = new Provider(issuer, {
    clients: ["marey", "other"].map((client_id) => ({
      client_id,
      client_secret: `${client_id}-secret`,
      redirect_uris: [redirectUri],
      post_logout_redirect_uris: [new URL("/sign-in", redirectUri).href],
    })),
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    cookies: { keys: ["tests"] },
    features: { devInteractions: { enabled: false } },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ ...account, sub }) }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    jwks: { keys: [makeKey()] },
    pkce: { required: () => true },
    ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
    async loadExistingGrant(ctx) {
      const grant = new ctx.oidc.provider.Grant({
        clientId: ctx.oidc.client.clientId,
        accountId: ctx.oidc.session.accountId,
      });
      grant.addOIDCScope("openid profile");
      await grant.save();
      return grant;
    },
  });
  return made;
}

async function control(request, response) {
  let text = "";
  for await (const chunk of request) text += chunk;
  const asked = JSON.parse(text);
  if (asked.account) account = asked.account;
  if (asked.rotate) provider = makeProvider();
  response.end("{}");
}

const server = createServer((request, response) => {
  if (request.url === "/control") void control(request, response);
  else if (request.url.startsWith("/interaction/"))
    void provider.interactionFinished(request, response, { login: { accountId: account.sub } });
  else provider.callback()(request, response);
});
server.listen(0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  provider = makeProvider();
  console.log(issuer);
});
