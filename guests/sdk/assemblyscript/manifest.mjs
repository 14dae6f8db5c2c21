// A transform of the AssemblyScript compiler: it writes manifest.json into the
// module's section dsh.policy, where the host reads it without running anything.
import { readFileSync } from "node:fs";
import { Transform } from "assemblyscript/transform";

export default class extends Transform {
  afterCompile(module) {
    const manifest = JSON.parse(readFileSync("manifest.json", "utf8"));
    module.addCustomSection("dsh.policy", new TextEncoder().encode(JSON.stringify(manifest)));
  }
}
