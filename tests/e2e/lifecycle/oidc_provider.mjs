// An issuer as others run one: oidc-provider over HTTPS, with one program as its client. Its arguments: the port, the
// files of its certificate and key, and the id of its signing keys.
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import Provider from 'oidc-provider';

const [port, cert, key, keyId] = process.argv.slice(2);
const signing = (kind, alg, options) => ({
  ...generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' }), kid: `${keyId}-${alg}`, alg, use: 'sig',
});
const provider = new Provider(`https://127.0.0.1:${port}`, {
  jwks: { keys: [signing('rsa', 'RS256', { modulusLength: 2048 }), signing('ec', 'ES256', { namedCurve: 'P-256' })] },
  clients: [{
    client_id: 'shop', client_secret: 'of-a-test', grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
  }],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: 'use', audience: new URL(resource).hostname, accessTokenTTL: 600, accessTokenFormat: 'jwt',
        jwt: { sign: { alg: new URL(resource).pathname.slice(1) } },
      }),
    },
  },
  extraTokenClaims: () => ({ groups: ['staff'] }),
});
const tls = { cert: readFileSync(cert), key: readFileSync(key) };
createServer(tls, provider.callback()).listen(Number(port), '127.0.0.1', () => console.log('ready'));
