/**
 * A form for the prompt of a wait. A prompt may describe the answer: `options` (a list of values, or of
 * `{value, label}`), or `schema` (JSON Schema: one value, or an object of simple ones); else the answer may be anything.
 */

import { facts, field, jsonBlock } from "../../components/controls.js";
import { h } from "../../lib/dom.js";
import { t } from "../../lib/i18n.js";
import { questionOf } from "./header.js";

/** @typedef {{element: HTMLElement, value: () => unknown}} Form */

/**
 * @param {Waiting} wait
 * @returns {Form}
 */
export function resumeForm(wait) {
  const prompt = wait.prompt ?? {};
  const question = questionOf(wait);
  const options = prompt["options"] ?? prompt["choices"];
  const schema = /** @type {any} */ (prompt["schema"] ?? prompt["fields"]);
  const known = ["question", "text", "message", "title", "label", "options", "choices", "schema", "fields"];
  const rest = Object.fromEntries(
    Object.entries(prompt).filter(
      ([name, value]) =>
        !known.includes(name) ||
        (name !== "options" && name !== "choices" && name !== "schema" && name !== "fields" && value !== question),
    ),
  );
  const form = Array.isArray(options)
    ? choice(options)
    : schema && typeof schema === "object"
      ? bySchema(schema)
      : anything();
  const element = h(
    "div",
    { class: "resume-form" },
    question ? h("p", { class: "question" }, question) : null,
    Object.keys(rest).length ? beside(rest) : null,
    form.element,
  );
  return { element, value: form.value };
}

/**
 * @param {any[]} options
 * @returns {Form}
 */
function choice(options) {
  const inputs = options.map((_, index) =>
    h("input", { type: "radio", name: "choice", value: String(index), required: true }),
  );
  const element = h(
    "fieldset",
    { class: "choices" },
    h("legend", null, t("resume.choose")),
    inputs.map((input, index) => h("label", { class: "choice" }, input, h("span", null, labelOf(options[index])))),
  );
  return {
    element,
    value: () => {
      const picked = options[inputs.findIndex((input) => input.checked)];
      return picked !== null && typeof picked === "object" && "value" in picked ? picked.value : picked;
    },
  };
}

/** @param {any} option */
function labelOf(option) {
  if (option !== null && typeof option === "object" && "value" in option) return String(option.label ?? option.value);
  return typeof option === "string" ? option : JSON.stringify(option);
}

/**
 * @param {any} schema
 * @returns {Form}
 */
function bySchema(schema) {
  const properties = schema.properties ?? (isOneValue(schema) ? null : schema);
  if (!properties) {
    const one = control(schema, true);
    return {
      element: field(String(schema.title ?? t("resume.value")), one.element, schema.description),
      value: one.value,
    };
  }
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const controls = Object.entries(properties).map(([name, inner]) => ({
    name,
    inner: /** @type {any} */ (inner),
    ...control(inner, required.has(name)),
  }));
  return {
    element: h(
      "div",
      { class: "fields" },
      controls.map(({ name, inner, element }) =>
        element instanceof HTMLInputElement && element.type === "checkbox"
          ? h("label", { class: "choice" }, element, h("span", null, String(inner?.title ?? name)))
          : field(String(inner?.title ?? name), element, inner?.description),
      ),
    ),
    value: () =>
      Object.fromEntries(controls.map(({ name, value }) => [name, value()]).filter(([, given]) => given !== undefined)),
  };
}

/** Is it the schema of one value, not the fields of an object by their names? @param {any} schema */
function isOneValue(schema) {
  if (schema.type) return true;
  return !Object.values(schema).every((inner) => typeof inner === "string" || isPlainObject(inner));
}

/** @param {unknown} value */
function isPlainObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/**
 * @param {any} schema
 * @param {boolean} required
 * @returns {Form}
 */
function control(schema, required) {
  const type = typeof schema === "string" ? schema : schema?.type;
  const preset = schema?.default;
  if (Array.isArray(schema?.enum)) {
    const select = h(
      "select",
      { class: "input", required },
      required ? null : h("option", { value: "" }, "–"),
      schema.enum.map((/** @type {any} */ one, /** @type {number} */ index) =>
        h("option", { value: String(index), selected: one === preset }, labelOf(one)),
      ),
    );
    return { element: select, value: () => (select.value === "" ? undefined : schema.enum[Number(select.value)]) };
  }
  if (type === "boolean") {
    const box = h("input", { type: "checkbox", checked: preset === true });
    return { element: box, value: () => box.checked };
  }
  if (type === "number" || type === "integer") {
    const input = h("input", {
      class: "input",
      type: "number",
      step: type === "integer" ? "1" : "any",
      min: schema?.minimum,
      max: schema?.maximum,
      required,
      value: preset ?? "",
    });
    return { element: input, value: () => (input.value === "" ? undefined : Number(input.value)) };
  }
  if (type === "object" || type === "array") {
    const area = h("textarea", {
      class: "input mono",
      rows: "4",
      required,
      value: preset === undefined ? "" : JSON.stringify(preset, null, 2),
    });
    return { element: area, value: () => (area.value.trim() ? parsed(area.value) : undefined) };
  }
  const input = h("input", { class: "input", required, maxlength: schema?.maxLength, value: preset ?? "" });
  return { element: input, value: () => (input.value === "" && !required ? undefined : input.value) };
}

/** The other fields of a prompt, as names and values if they are plain. @param {Record<string, any>} others */
function beside(others) {
  const plain = Object.values(others).every((value) => ["string", "number", "boolean"].includes(typeof value));
  return plain
    ? facts(Object.entries(others).map(([name, value]) => [name, String(value)]))
    : jsonBlock(others, t("resume.prompt"));
}

/** A form for a prompt without a description: yes or no, a text, a number, or any JSON. @returns {Form} */
function anything() {
  /** @type {Record<string, Form>} */
  const kinds = {
    boolean: yesNo(),
    text: control("string", false),
    number: control("number", false),
    json: control("object", false),
  };
  const words = { boolean: t("resume.yes_no"), text: t("resume.text"), number: t("resume.number"), json: "JSON" };
  let chosen = "boolean";
  const room = h("div", { class: "resume-value" }, kinds[chosen]?.element ?? null);
  const radios = Object.entries(words).map(([kind, word]) =>
    h(
      "label",
      { class: "choice" },
      h("input", {
        type: "radio",
        name: "kind",
        value: kind,
        checked: kind === chosen,
        on: {
          change: () => {
            chosen = kind;
            room.replaceChildren(/** @type {Form} */ (kinds[kind]).element);
          },
        },
      }),
      h("span", null, word),
    ),
  );
  return {
    element: h(
      "div",
      null,
      h("fieldset", { class: "choices in-row" }, h("legend", null, t("resume.kind")), radios),
      room,
    ),
    value: () => kinds[chosen]?.value() ?? null,
  };
}

/** @returns {Form} */
function yesNo() {
  const yes = h("input", { type: "radio", name: "yes-no", value: "yes", checked: true });
  const no = h("input", { type: "radio", name: "yes-no", value: "no" });
  return {
    element: h(
      "fieldset",
      { class: "choices in-row" },
      h("legend", null, t("resume.value")),
      h("label", { class: "choice" }, yes, h("span", null, t("resume.yes"))),
      h("label", { class: "choice" }, no, h("span", null, t("resume.no"))),
    ),
    value: () => yes.checked,
  };
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(t("resume.not_json", { why: error instanceof Error ? error.message : "" }), { cause: error });
  }
}
