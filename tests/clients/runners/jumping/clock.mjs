// Loaded before a program: Date jumps an hour to and fro, twenty times a second. performance.now does not.
const now = Date.now;
const jumped = () => now() + 3_600_000 * ((Math.floor(performance.now() / 50) % 3) - 1);
globalThis.Date = class extends Date {
  constructor(...given) {
    super(...(given.length === 0 ? [jumped()] : given));
  }
  static now = jumped;
};
