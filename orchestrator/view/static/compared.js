// Two runs side by side.
export const compared = async () => { throw new Error("not here yet"); };
