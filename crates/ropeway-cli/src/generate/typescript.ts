/** Calls tools. A connected client of the official TypeScript SDK has this method. */
export interface ToolCaller {
  callTool(params: { name: string; arguments?: Record<string, unknown> }): Promise<unknown>;
}

/** The result of a tool. */
export interface ToolResult<T> {
  /** Structured content; `undefined` if the tool has none. The server's promise, not checked. */
  data: T;
  /** The text parts, each on its own lines. */
  text: string;
  /** The result as the server sent it. */
  raw: unknown;
}

/** A tool reported an error. */
export class ToolError extends Error {
  readonly tool: string;
  readonly result: ToolResult<unknown>;

  constructor(tool: string, result: ToolResult<unknown>) {
    super(result.text === "" ? "the tool failed" : result.text);
    this.name = "ToolError";
    this.tool = tool;
    this.result = result;
  }
}

/** The tools of the server, as methods. */
export class ServerClient {
  readonly #caller: ToolCaller;

  constructor(caller: ToolCaller) {
    this.#caller = caller;
  }
  // methods

  async #call<T>(tool: string, args: unknown): Promise<ToolResult<T>> {
    const raw = await this.#caller.callTool({ name: tool, arguments: args as Record<string, unknown> });
    const { content, structuredContent, isError } = (raw ?? {}) as Record<string, unknown>;
    const parts = (Array.isArray(content) ? content : []) as { type?: unknown; text?: unknown }[];
    const text = parts.filter((part) => part.type === "text").map((part) => String(part.text)).join("\n");
    const result: ToolResult<T> = { data: structuredContent as T, text, raw };
    if (isError === true) {
      throw new ToolError(tool, result);
    }
    return result;
  }
}
