// What clients ask for in a format, and for a tool that they offer. See tale.py.
import { z } from 'zod';

export const Tale = z.object({ hero: z.enum(['cat', 'dog']), age: z.number().int().min(1).max(99), happy: z.boolean() });

export const result = 'Once there was a dog.'; // of the tool
