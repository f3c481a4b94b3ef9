// The module `k6/html`.
const native = globalThis.__linerate;
native.html ??= native.loadHtml();

export const { parseHTML, Selection, Element } = native.html;
export default { parseHTML, Selection, Element };
