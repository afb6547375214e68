// Verifies signed requests with the package web-bot-auth: one line for each, `accepted` or `refused`.
import { verify } from "web-bot-auth";
import { verifierFromJWK } from "web-bot-auth/crypto";
import { readFileSync } from "node:fs";

const told = JSON.parse(readFileSync(process.argv[2], "utf8"));
for (const { url, headers, key } of told) {
  const message = new Request(url, { headers });
  try {
    await verify(message, await verifierFromJWK(key));
    console.log("accepted");
  } catch (error) {
    console.log("refused");
  }
}
