// What the checks of all clients for Node share: the plan, and the report. See plan.py.
import { readFileSync } from 'node:fs';

export const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));

export async function check(name, run) {
  let error = null;
  try {
    await run();
  } catch (e) {
    error = `${e?.constructor?.name}: ${e?.message ?? e}`.slice(0, 600);
  }
  console.log(JSON.stringify({ check: name, error }));
}

export function equal(got, want, what) {
  const [g, w] = [JSON.stringify(got), JSON.stringify(want)];
  if (g !== w) throw new Error(`${what} is ${g}, want ${w}`);
}

// Expects call to be refused with an error that test accepts, and returns the error.
export async function refused(call, test) {
  try {
    await call();
  } catch (e) {
    if (!test(e)) throw new Error(`another error: ${e?.constructor?.name} ${e?.message}`);
    return e;
  }
  throw new Error('no error');
}

// Asks a server that is nearly always full until it refuses.
export async function untilBusy(call, test) {
  for (let i = 0; i < 200; i++) {
    try {
      await call();
    } catch (e) {
      if (test(e)) return e;
      throw e;
    }
  }
  throw new Error('no refusal in 200 requests');
}
