// Runs one statement a line with node-postgres, so that tests see how this driver sends its parameters.
//
// A line is {"sql", "args"}; an argument is a string, a number, {"bytes": "hex"} or {"object": anything}. The answer
// is {} or {"error", "hint", "code"}.
const readline = require("node:readline");
const { createRequire } = require("node:module");

const { Client } = createRequire(process.argv[2] + "/")("pg");

function argument(value) {
    if (typeof value !== "object") return value;
    return "bytes" in value ? Buffer.from(value.bytes, "hex") : value.object;
}

async function main() {
    const [host, database, user] = process.argv.slice(3);
    const client = new Client({ host, database, user });
    await client.connect();
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const { sql, args } = JSON.parse(line);
        const answer = await client.query(sql, args.map(argument)).then(
            () => ({}),
            (error) => ({ error: error.message, hint: error.hint, code: error.code }),
        );
        console.log(JSON.stringify(answer));
    }
    await client.end();
}

main();
