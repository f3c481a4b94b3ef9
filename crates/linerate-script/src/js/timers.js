// The module `k6/timers`.
const { setTimeout, setInterval, clearTimeout, clearInterval } = globalThis;

export { setTimeout, setInterval, clearTimeout, clearInterval };
export default { setTimeout, setInterval, clearTimeout, clearInterval };
